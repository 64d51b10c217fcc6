package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLifecycle_stopsInReverseOnceAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lifecycle
		var mu sync.Mutex // nobody waits for the one that hangs, so nothing else orders it
		var order []string
		called := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
		}
		note := func(name string, err error) func(context.Context) error {
			return func(context.Context) error {
				called(name)
				return err
			}
		}
		release := make(chan struct{})
		l.onStop("first", time.Second, note("first", nil))
		l.onStop("hangs", time.Second, func(context.Context) error {
			called("hangs")
			<-release
			return nil
		})
		l.onStop("fails", time.Second, note("fails", errors.New("broken")))

		begin := time.Now()
		err := l.stop()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want the second that the hanging one may take", took)
		}
		if want := []string{"fails", "hangs", "first"}; !slices.Equal(order, want) {
			t.Errorf("stopped %v, want %v", order, want)
		}
		if err == nil || !strings.Contains(err.Error(), "fails: broken") || !strings.Contains(err.Error(), "hangs: not done") {
			t.Errorf("error %v names neither what failed nor what hung", err)
		}
		if err := l.stop(); err != nil || len(order) != 3 {
			t.Errorf("a second stop did something: %v, %v", order, err)
		}
		close(release)
	})
}
