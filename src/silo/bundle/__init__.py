"""The .silo file: format, writer, reader, verification."""
