"""How a step is read, booked and handed on: the budget, the mode of a step, light steps, facts, delivery."""
