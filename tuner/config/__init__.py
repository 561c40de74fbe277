"""The sweep file: schema, loader, dimensions, the space of points, prompts."""
