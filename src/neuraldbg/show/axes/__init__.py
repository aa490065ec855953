"""The axes of pictures: ticks, gaps between recorded steps, and fewer points than were recorded."""
