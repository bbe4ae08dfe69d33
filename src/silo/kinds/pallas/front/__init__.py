"""The source plug-in ``pallas``: reads Pallas bodies and the descriptions of their launches."""
