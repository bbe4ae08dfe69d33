"""The compiler of what is compiled already: it checks and passes on."""
