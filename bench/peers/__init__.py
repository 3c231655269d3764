"""Compare Recto with other systems."""
