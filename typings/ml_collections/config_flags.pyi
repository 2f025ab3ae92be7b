"""What charlm uses of ml_collections.config_flags."""

from absl import flags

from . import ConfigDict

def DEFINE_config_file(
    name: str, default: str | None = None, help_string: str = ..., *, lock_config: bool = True
) -> flags.FlagHolder[ConfigDict]: ...
def get_config_filename(config_flag: flags.Flag[ConfigDict]) -> str: ...
