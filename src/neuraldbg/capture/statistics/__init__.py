"""From a tensor to a row of numbers, on the CPU and on a device."""
