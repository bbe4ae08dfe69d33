"""Results of other tuners, and Silo's in their formats: one module per format."""
