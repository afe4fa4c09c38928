"""Reports: documents, figures and how they are rendered."""
