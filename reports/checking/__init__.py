"""Reports of a check: terminal text, GitHub comment and annotations, SARIF, JUnit, JSON, and the page of a history."""
