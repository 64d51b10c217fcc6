package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// pageSection is the operations of one tag.
type pageSection struct {
	Tag        string
	Operations []*huma.Operation
}

// pageField is one row of a schema's table.
type pageField struct {
	Name, Type, About string
	Required          bool
	Fields            []pageField // of an object written in place
}

// renderPage writes the document for people: one page without scripts, fonts or anything else
// from elsewhere, so that it works where there is no internet.
func renderPage(api *huma.OpenAPI, registry huma.Registry) (page []byte, csp string, err error) {
	shown := map[string]*pageSection{}
	var sections []*pageSection
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		item := api.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			s := shown[op.Tags[0]]
			if s == nil {
				s = &pageSection{Tag: op.Tags[0]}
				shown[op.Tags[0]] = s
				sections = append(sections, s)
			}
			s.Operations = append(s.Operations, op)
		}
	}
	order := []string{"Events", "Endpoints", "Deliveries", "Jobs", "Tenants", "Sessions", "Keys", "Audit", "Operator", "Server"}
	slices.SortStableFunc(sections, func(a, b *pageSection) int {
		return slices.Index(order, a.Tag) - slices.Index(order, b.Tag)
	})

	type namedCode struct {
		Code   Code
		Status int
		About  string
	}
	var known []namedCode
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		known = append(known, namedCode{code, codes[code].status, codes[code].about})
	}

	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"fields":   pageFields,
		"schemaOf": schemaOf,
		"sorted":   func(m map[string]*huma.Response) []string { return slices.Sorted(maps.Keys(m)) },
		"lines":    func(s string) []string { return strings.Split(s, "\n\n") },
	}).Parse(pageHTML)
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	err = tmpl.Execute(&out, map[string]any{
		"API": api, "Sections": sections, "Schemas": registry.Map(), "Codes": known, "CSS": template.CSS(pageCSS),
	})
	// The policy names the style by its digest, so nothing else can add one.
	digest := sha256.Sum256([]byte(pageCSS))
	csp = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return out.Bytes(), csp, err
}

// schemaOf returns the name of the schema a body refers to, "" if it is written in place.
func schemaOf(content map[string]*huma.MediaType) string {
	for _, media := range content {
		if media.Schema != nil && media.Schema.Ref != "" {
			return refName(media.Schema.Ref)
		}
	}
	return ""
}

func refName(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }

// pageFields lists an object's members, those that are required first.
func pageFields(s *huma.Schema) []pageField {
	if s == nil {
		return nil
	}
	var fields []pageField
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		f := pageField{Name: name, Type: pageType(p), About: p.Description, Required: slices.Contains(s.Required, name)}
		if p.Items != nil {
			f.Fields = pageFields(p.Items)
		} else {
			f.Fields = pageFields(p)
		}
		fields = append(fields, f)
	}
	slices.SortStableFunc(fields, func(a, b pageField) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return fields
}

func pageType(s *huma.Schema) string {
	var kind string
	switch {
	case s.Ref != "":
		return refName(s.Ref)
	case len(s.AnyOf) > 0:
		var kinds []string
		for _, one := range s.AnyOf {
			kinds = append(kinds, pageType(one))
		}
		return strings.Join(kinds, " or ")
	case len(s.Enum) > 0:
		var words []string
		for _, word := range s.Enum {
			if text, ok := word.(string); ok {
				words = append(words, text)
			}
		}
		kind = strings.Join(words, " · ")
	case s.Items != nil:
		kind = "array of " + pageType(s.Items)
	case s.Type == "":
		kind = "any value"
	case s.Format != "":
		kind = s.Type + ", " + s.Format
	default:
		kind = s.Type
	}
	if s.Nullable {
		kind += " or null"
	}
	return kind
}
