"""The one error of everything an operator or developer starts from here."""


class DeployError(Exception):
    """A command or a local part cannot be carried out or started. The message is for the person at the terminal; it holds no secret.

    `exit_code` is 2 where a setting, a port or another run is in the way, 1 where something failed.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code
