"""What `tidegate init` copies: a folder per example; and the code that lands the flights of New York."""
