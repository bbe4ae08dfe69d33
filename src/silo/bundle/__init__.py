"""The ``.silo`` file: its format, writer, reader and verification."""
