"""The checks that a kernel or a launch may be asked for, beside bounds: `names` lists them."""
