"""Being here puts this folder on the import path, so that tests of several folders share their samples."""
