"""What runs on a Ray cluster: an extra, imported where it is used."""
