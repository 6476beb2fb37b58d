"""What to rent: candidates, the highest rate each of them bears, and the cheapest that serves what is asked."""
