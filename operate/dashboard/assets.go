package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assets embed.FS

// files are the styles and scripts. Each has an address that changes with its
// content, so that browsers may keep it forever.
type files struct {
	address map[string]string // by name
	content map[string][]byte // by address
}

func readFiles() (files, error) {
	f := files{address: map[string]string{}, content: map[string][]byte{}}
	names, err := fs.Glob(assets, "assets/*")
	if err != nil {
		return f, fmt.Errorf("dashboard: %w", err)
	}
	for _, name := range names {
		content, err := assets.ReadFile(name)
		if err != nil {
			return f, fmt.Errorf("dashboard: %w", err)
		}
		sum := sha256.Sum256(content)
		base, ending := path.Base(name), path.Ext(name)
		address := strings.TrimSuffix(base, ending) + "." + hex.EncodeToString(sum[:5]) + ending
		f.address[base], f.content[address] = address, content
	}
	return f, nil
}

// kinds are the media types of the files.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

func (f files) serve(w http.ResponseWriter, r *http.Request) {
	content, known := f.content[r.PathValue("name")]
	if !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kinds[path.Ext(r.PathValue("name"))])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(content) // the asker may have gone
}
