package dashboard

import (
	"io/fs"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pages are parsed when they are first shown, so nothing else finds one that cannot be.
func TestEveryPageIsParsed(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(templates, "templates/*.html")
	require.NoError(t, err)
	require.Greater(t, len(names), 10)
	var p pages
	var all sync.WaitGroup
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if page == "layout" || page == "parts" {
			continue
		}
		for range 2 {
			all.Go(func() {
				made, err := p.of(page)
				if err == nil && made.Lookup("layout") == nil {
					t.Error(page, "has no layout")
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	_, err = p.of("none")
	require.Error(t, err)
}
