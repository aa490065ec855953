"""The toolbox: numbers that a program hands over by hand, from any framework, become statistics, comparisons and the
rows of a run. It never imports a framework; it reads what the object that it is given offers.
"""
