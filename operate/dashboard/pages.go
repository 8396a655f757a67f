package dashboard

import (
	"embed"
	"fmt"
	"html/template"
	"sync"
)

//go:embed templates
var templates embed.FS

// pages are the parsed templates. Each is parsed when it is first shown: together they take
// 3 MB, which the garbage collector need not mark in a worker whose pages are not opened.
// Its methods may be called concurrently.
type pages struct {
	mu     sync.Mutex
	shared *template.Template // the layout and the parts around every page
	made   map[string]*template.Template
}

// of returns the template of a page.
func (p *pages) of(name string) (*template.Template, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made := p.made[name]; made != nil {
		return made, nil
	}
	if p.shared == nil {
		shared, err := template.New("").Funcs(functions()).ParseFS(templates, "templates/layout.html", "templates/parts.html")
		if err != nil {
			return nil, fmt.Errorf("dashboard: %w", err)
		}
		p.shared, p.made = shared, map[string]*template.Template{}
	}
	own, err := p.shared.Clone()
	if err == nil {
		own, err = own.ParseFS(templates, "templates/"+name+".html")
	}
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	p.made[name] = own
	return own, nil
}
