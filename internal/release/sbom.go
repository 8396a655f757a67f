package main

import (
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// bill is a software bill of materials, in the format CycloneDX 1.5.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     billMetadata `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type billMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string          `json:"type"`
	Ref        string          `json:"bom-ref"`
	Name       string          `json:"name"`
	Version    string          `json:"version"`
	PURL       string          `json:"purl"`
	Licences   []licenceChoice `json:"licenses,omitempty"`
	Properties []property      `json:"properties,omitempty"`
}

type licenceChoice struct {
	Licence map[string]string `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// sbom lists what a program was built from, as the program itself says.
func (r release) sbom(built string, licences []licence, made time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(built)
	if err != nil {
		return nil, err
	}
	main := part("application", module, r.version, nil)
	main.Licences = []licenceChoice{{map[string]string{"id": "Apache-2.0"}}}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" {
			main.Properties = append(main.Properties, property{"durable:" + s.Key, s.Value})
		}
	}
	b := bill{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: billMetadata{made.Format(time.RFC3339), main}}
	components := []component{part("library", "std", strings.TrimPrefix(info.GoVersion, "go"), licences)}
	for _, d := range info.Deps {
		components = append(components, moduleOf(d, licences))
	}
	on := []string{}
	for _, c := range components {
		on = append(on, c.Ref)
	}
	b.Components, b.Dependencies = components, []dependency{{main.Ref, on}}
	unnamed, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	b.Serial = uuid.NewSHA1(uuid.NameSpaceURL, unnamed).URN() // the same contents have the same number
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

// moduleOf is the component of a module, with the sum that Go has checked.
func moduleOf(d *debug.Module, licences []licence) component {
	for d.Replace != nil {
		d = d.Replace
	}
	c := part("library", d.Path, d.Version, licences)
	if d.Sum != "" {
		c.Properties = []property{{"durable:go.sum", d.Sum}}
	}
	return c
}

func part(kind, name, version string, licences []licence) component {
	purl := "pkg:golang/" + name + "@" + version
	c := component{Type: kind, Ref: purl, Name: name, Version: version, PURL: purl}
	if at := slices.IndexFunc(licences, func(l licence) bool { return l.module == name }); at >= 0 {
		for _, id := range licences[at].ids {
			key := "id"
			if id == "public-domain" { // no licence, so that SPDX has no id for it
				key = "name"
			}
			c.Licences = append(c.Licences, licenceChoice{map[string]string{key: id}})
		}
	}
	return c
}
