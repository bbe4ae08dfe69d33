"""Source plug-in ``pallas``: Pallas bodies, with the descriptions of their launches."""
