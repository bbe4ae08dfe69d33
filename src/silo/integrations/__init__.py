"""Integrations with other projects. A module here does not import the other project until it is used."""
