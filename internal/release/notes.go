package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// notes is the changelog's section of the version, without its heading.
func (r release) notes() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	return section(string(text), strings.TrimPrefix(r.version, "v"))
}

// section finds `## [version] - date` in a changelog and returns what is below it.
func section(changelog, version string) (string, error) {
	heading := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(version) + `\] - \d{4}-\d\d-\d\d\n`)
	at := heading.FindStringIndex(changelog)
	if at == nil {
		return "", fmt.Errorf("CHANGELOG.md has no section `## [%s] - YEAR-MONTH-DAY`", version)
	}
	body := changelog[at[1]:]
	if end := regexp.MustCompile(`(?m)^## `).FindStringIndex(body); end != nil {
		body = body[:end[0]]
	}
	body = strings.TrimSpace(body)
	if body == "" {
		return "", fmt.Errorf("CHANGELOG.md says nothing about %s", version)
	}
	return body + "\n", nil
}

func (r release) printNotes() error {
	text, err := r.notes()
	if err != nil {
		return err
	}
	r.say("%s", strings.TrimSuffix(text, "\n"))
	return nil
}
