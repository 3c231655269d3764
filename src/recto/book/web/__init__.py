"""Books on websites: find the pages, ask for them politely, and trust nothing that comes back."""
