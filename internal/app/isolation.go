package app

import (
	"os"

	"github.com/waybill-dev/waybill/internal/quarantine"
)

// isolation makes processes of this same program for what may have killed one.
func (a *App) isolation(settings quarantine.Settings) (*quarantine.Runner, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	return quarantine.New(quarantine.Config{
		Command:  []string{program, quarantine.Command},
		Settings: settings,
		Clock:    &a.clock,
	}), nil
}

// self names the running program. Where the system can say "this very one" it is asked to: the
// file may have been replaced by another version meanwhile, which speaks another language.
func self() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}
