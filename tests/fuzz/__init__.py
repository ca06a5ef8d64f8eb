"""Input that nobody expects, into every public entry of the library."""
