"""The sample book: a Docusaurus tree on physical AI and humanoid robotics, and questions about it."""
