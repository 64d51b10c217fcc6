package bench

import "github.com/spf13/cobra"

// Commands returns the hidden commands a run starts as processes of its own.
func Commands() []*cobra.Command {
	var commands []*cobra.Command
	for _, role := range []string{RoleSink, RolePublisher, RoleRaw} {
		commands = append(commands, &cobra.Command{
			Use:    role,
			Hidden: true,
			Args:   cobra.NoArgs,
			RunE:   func(cmd *cobra.Command, _ []string) error { return RunRole(cmd.Context(), role) },
		})
	}
	return commands
}
