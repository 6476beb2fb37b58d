"""Plans: a sweep turns one scenario into a grid of runs and one tidy table."""
