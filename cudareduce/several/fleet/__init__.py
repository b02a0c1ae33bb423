"""Which card is slower than its like? Results of many machines in one store, card by card."""
