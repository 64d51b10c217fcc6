// Package config turns a file, the environment and flags into one Config, or into one sentence
// that names the setting and the reason.
//
// A flag beats the environment, which beats the file, which beats the default. Every setting has
// one name in three spellings: --max-payload, WAYBILL_MAX_PAYLOAD, and max_payload in the YAML
// file. A secret can be named by a file that holds it (WAYBILL_API_KEY_FILE); as a flag it can
// only be named so, because other users of the machine can read a process's arguments.
//
// Nothing is ignored silently: an unknown name in the file is refused, and so is a setting whose
// behaviour this version does not have. An unknown WAYBILL_ variable in the environment is a
// warning only, since orchestrators put variables of that form there themselves.
package config
