package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/v2"

	"github.com/waybill-dev/waybill/internal/outbox"
)

// Sources is where settings come from, the strongest last.
type Sources struct {
	// File is a YAML file of settings; "" for none.
	File string
	// Environ is the environment, as os.Environ returns it.
	Environ []string
	// Flags holds the flags that were given, by Setting.Flag.
	Flags map[string]string
}

// ValueError is a setting that cannot be used. Its text is one sentence for the person who
// started the process and never holds a secret.
type ValueError struct {
	Name   string // as it was spelled: WAYBILL_LISTEN, --listen, "listen in waybill.yaml"
	Reason string
}

func (e *ValueError) Error() string { return e.Name + ": " + e.Reason }

// Load reads the sources and returns a valid Config, or a *ValueError.
func Load(src Sources) (Config, error) {
	var c Config
	l, err := src.read(&c.Warnings)
	if err != nil {
		return Config{}, err
	}
	for _, s := range settings {
		value := l.values.String(s.Key)
		name := l.names[s.Key]
		if value == "" {
			continue
		}
		if err := s.set(&c, value); err != nil {
			return Config{}, &ValueError{name, err.Error()}
		}
	}
	return c, c.finish(l.names)
}

// Value is what a setting is set to.
type Value struct {
	Key   string `json:"key"`
	Value string `json:"value"` // [secret] for a secret that is set
	// From is where the value comes from: the variable, the flag, "key in file", or "default".
	From string `json:"from"`
}

// Explain says what every setting is set to and by what, for people. The values
// are as they were written; only Load says whether they can be used.
func Explain(src Sources) ([]Value, error) {
	var warnings []string
	l, err := src.read(&warnings)
	if err != nil {
		return nil, err
	}
	var all []Value
	for _, s := range settings {
		v := Value{Key: s.Key, Value: l.values.String(s.Key), From: l.names[s.Key]}
		if s.Secret {
			v.Value = l.secret(s)
		}
		if !l.given[s.Key] {
			v.From = "default"
		}
		all = append(all, v)
	}
	return all, nil
}

// secret shows of a secret only that it is set; a database's address is shown without its password.
func (l *loader) secret(s Setting) string {
	value := l.values.String(s.Key)
	if strings.HasSuffix(s.Key, "database_url") && value != "" {
		return describeDatabase(Secret(value))
	}
	return Secret(value).String()
}

// read puts the sources on top of one another.
func (src Sources) read(warnings *[]string) (*loader, error) {
	l := &loader{names: map[string]string{}, given: map[string]bool{}, values: koanf.New(".")}
	if err := l.add(defaults()); err != nil {
		return nil, err
	}
	for _, read := range []func() (layer, error){
		func() (layer, error) { return fromFile(src.File) },
		func() (layer, error) { return fromEnviron(src.Environ, warnings) },
		func() (layer, error) { return fromFlags(src.Flags, warnings) },
	} {
		layer, err := read()
		if err != nil {
			return nil, err
		}
		if err := l.add(layer); err != nil {
			return nil, err
		}
		for key := range layer {
			l.given[key] = true
		}
	}
	return l, nil
}

// finish derives what depends on several settings and checks what they mean together.
func (c *Config) finish(names map[string]string) error {
	if c.MigrateDatabaseURL == "" {
		c.MigrateDatabaseURL = c.DatabaseURL
	}
	c.Retry.Initial = min(outbox.DefaultRetry.Initial, c.Retry.Max)
	name := func(key string) string {
		if n := names[key]; n != "" {
			return n
		}
		return prefix + strings.ToUpper(key)
	}
	switch {
	case !sameDatabase(c.DatabaseURL, c.MigrateDatabaseURL):
		return &ValueError{name("migrate_database_url"), "must name the same database as WAYBILL_DATABASE_URL, as another role"}
	case !c.Roles.Has(RoleDispatch) && strings.HasPrefix(c.DatabaseURL.Reveal(), sqliteScheme):
		return &ValueError{name("roles"), "must include dispatch with SQLite: no other process can do it"}
	case c.AdminListen != "" && c.AdminListen == c.Listen && !strings.HasSuffix(c.Listen, ":0"):
		return &ValueError{name("admin_listen"), "must differ from WAYBILL_LISTEN"}
	case c.Retention < c.MaxPendingAge+2*day:
		// A delivery may be pending for the whole age, and its event's day is dropped whole.
		return &ValueError{name("retention"), fmt.Sprintf("%s must be at least two days longer than the largest pending age (%s), so that no pending delivery loses its event",
			FormatDuration(c.Retention), FormatDuration(c.MaxPendingAge))}
	}
	return nil
}

// layer is one source's settings: the value, and the name a person would look for it under.
type layer map[string]named

type named struct{ value, name string }

type loader struct {
	values *koanf.Koanf
	names  map[string]string
	given  map[string]bool // by more than its default
}

func (l *loader) add(from layer) error {
	for key, n := range from {
		l.names[key] = n.name
	}
	return l.values.Load(from, nil)
}

// Read makes a layer a koanf.Provider.
func (l layer) Read() (map[string]any, error) {
	values := make(map[string]any, len(l))
	for key, n := range l {
		values[key] = n.value
	}
	return values, nil
}

// ReadBytes is the other half of koanf.Provider, for sources that need a parser.
func (l layer) ReadBytes() ([]byte, error) { return nil, errors.New("a layer is parsed already") }

func defaults() layer {
	l := layer{}
	for _, s := range settings {
		l[s.Key] = named{s.Default, s.Variable()}
	}
	return l
}

// put adds a value under key, or the content of the file it names where key ends with _file.
func (l layer) put(key, value, name string) error {
	if value == "" {
		return nil // an empty variable is how compose files and shells say "not set"
	}
	target, isFile := strings.CutSuffix(key, "_file")
	if isFile {
		content, err := os.ReadFile(value)
		if err != nil {
			return &ValueError{name, "cannot read the file: " + reason(err)}
		}
		if key, value = target, strings.TrimSpace(string(content)); value == "" {
			return &ValueError{name, "the file is empty"}
		}
	}
	if before, twice := l[key]; twice {
		return &ValueError{name, "is set beside " + before.name + "; keep one"}
	}
	l[key] = named{value, name}
	return nil
}

// lookup finds the setting of a file key or of the tail of a variable.
func lookup(key string) (Setting, bool) {
	for _, s := range settings {
		if key == s.Key || s.Secret && key == s.Key+"_file" {
			return s, true
		}
	}
	return Setting{}, false
}

func fromFile(path string) (layer, error) {
	l := layer{}
	if path == "" {
		return l, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, &ValueError{path, "cannot read the configuration file: " + reason(err)}
	}
	values, err := yaml.Parser().Unmarshal(content)
	if err != nil {
		// The parser's own text quotes lines of the file, and one of them may hold a secret.
		return nil, &ValueError{path, "is not a YAML file of settings such as \"listen: 127.0.0.1:8420\""}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := key + " in " + path
		if _, known := lookup(key); !known {
			return nil, &ValueError{name, "there is no such setting"}
		}
		value, err := scalar(values[key])
		if err != nil {
			return nil, &ValueError{name, err.Error()}
		}
		if err := l.put(key, value, name); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// scalar writes a YAML value the way the environment would hold it.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case int, int64, uint64, float64, bool:
		return fmt.Sprint(v), nil
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			s, err := scalar(item)
			if err != nil {
				return "", err
			}
			items[i] = s
		}
		return strings.Join(items, ","), nil
	default:
		return "", errors.New("must be one value or a list of values")
	}
}

// notOurs are variables with our prefix that mean something else.
var notOurs = []string{
	prefix + "URL",    // the server, for client commands
	prefix + "CONFIG", // the file itself
}

func fromEnviron(environ []string, warnings *[]string) (layer, error) {
	l := layer{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		tail, ours := strings.CutPrefix(name, prefix)
		if !ours || slices.Contains(notOurs, name) {
			continue
		}
		key := strings.ToLower(tail)
		if _, known := lookup(key); !known || tail != strings.ToUpper(tail) {
			*warnings = append(*warnings, name+" is not a setting of Waybill and has no effect")
			continue
		}
		if err := l.put(key, value, name); err != nil {
			return nil, err
		}
	}
	slices.Sort(*warnings)
	return l, nil
}

func fromFlags(flags map[string]string, warnings *[]string) (layer, error) {
	l := layer{}
	for _, s := range settings {
		value, given := flags[s.Flag()]
		if !given {
			continue
		}
		if s.Key == "database_url" && hasPassword(value) {
			*warnings = append(*warnings, "--database-url holds a password, which every user of this machine can read; prefer WAYBILL_DATABASE_URL or WAYBILL_DATABASE_URL_FILE")
		}
		key := strings.ReplaceAll(s.Flag(), "-", "_")
		if err := l.put(key, value, "--"+s.Flag()); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// reason is an error's cause without the path, which the sentence has already.
func reason(err error) string {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err.Error()
	}
	return err.Error()
}
