"""What conversations leave behind: keys, the table, and the two stores."""
