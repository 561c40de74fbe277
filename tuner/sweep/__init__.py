"""The door: a sweep file read strictly, its space of points and its workload."""
