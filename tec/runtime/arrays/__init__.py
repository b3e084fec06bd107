"""Arrays on devices, their types, and how they come from and go to other libraries."""
