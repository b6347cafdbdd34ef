"""What compares Tidegate with the papers: their methods as published, and their figures. Not part of the product."""
