"""The form every protocol is translated to and from. Block-structured, because blocks can hold what others say."""
