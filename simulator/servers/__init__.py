"""How the servers that people run are started."""
