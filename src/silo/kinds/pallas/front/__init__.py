"""Source plug-in ``pallas``: Pallas bodies, with what a launch of them needs said beside them."""
