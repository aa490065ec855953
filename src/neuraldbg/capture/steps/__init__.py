"""Steps as they are read, booked and handed on: the budget, the mode of a step, light steps, facts, delivery."""
