"""A private training run: what is fixed beforehand, and the loop that carries it out."""
