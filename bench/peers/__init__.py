"""The comparison with the systems that a user would otherwise take."""
