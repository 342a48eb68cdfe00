// Compiled once: the precompiled header that every room with torch in it shares.
