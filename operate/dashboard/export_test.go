package dashboard

import (
	"maps"
	"slices"
)

// Patterns are the patterns of all pages.
func Patterns() []string { return slices.Sorted(maps.Keys((&dashboard{}).makers())) }
